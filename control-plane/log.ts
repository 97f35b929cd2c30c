// One JSON object a line on standard error: what an operator's log collector reads without a parser of its own.
export type LogFields = Record<string, string | number | boolean | null>;

export interface Log {
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
}

export const silentLog: Log = { info: () => undefined, warn: () => undefined };

export function stderrLog(nowMs: () => number): Log {
  const write =
    (level: string) =>
    (message: string, fields: LogFields = {}): void => {
      process.stderr.write(`${JSON.stringify({ time: new Date(nowMs()).toISOString(), level, message, ...fields })}\n`);
    };
  return { info: write('info'), warn: write('warn') };
}
