// The two kinds of failure a command can end with, told apart by type because they end with different exit codes.

/** The command was called wrongly: exit code 2, and a hint at --help. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** The command was called rightly and failed: exit code 1, the message says what to do. */
export class CommandError extends Error {
  override name = 'CommandError';
}

/** The message of anything thrown, with the messages of its causes. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? '' : `: ${messageOf(error.cause)}`;
  return (error.message || error.name) + cause;
}
