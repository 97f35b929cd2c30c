// What the probe filter sees of one request, line by line. The Node host and the real Envoy must both tell this story.

export const storyConfiguration = 'hello';
export const storyPath = '/v1/chat/completions';
export const storyRequest = 'first chunk';
export const storyResponse = 'an answer';

export function startStory(pluginName: string): string[] {
  return ['create 1 0', 'vm_start 1', `configure 1 ${pluginName} ${storyConfiguration}`];
}

export function requestStory(id: number, root: number, cluster: string, upstream: string): string[] {
  return [
    `create ${id} ${root}`,
    `request_headers ${id} 0 ${storyPath} ${cluster}`,
    `request_body ${id} 0 11 11 first ch - ${cluster}`,
    `request_body ${id} 1 0 0 - - ${cluster}`,
    `response_headers ${id} 0 200`,
    `response_body ${id} 0 9 9 an answe`,
    `response_body ${id} 1 0 0 -`,
    `log ${id} 200 ${cluster} ${upstream}`,
    `done ${id}`,
    `delete ${id}`,
  ];
}

export const storyEnvironment = { PROBE_VALUE: 'from outside', OTHER: 'x' };

/** What each group of host calls in probe-calls.ts logs. */
export const callStories: [name: string, line: RegExp][] = [
  ['headers', /^do 0 0 0 0 one 1  0 1$/],
  ['environment', /^do 0 from outside 1 $/],
  ['random', /^do 1$/],
  ['shared', /^do 0 8 0 one 0 one 1 6  0 8 0 0 $/],
  ['metrics', /^do 0 0 0 0 3$/],
  ['lines', /^do -9223372036854775808 9223372036854775807 0( 0){100}(something longer)+[a-z ]*\.\.\.$/],
  ['time', /^do 1 [23]$/],
  ['state', /^do 0 0 0 something longer$/],
  ['respond', /^do 0$/],
];
