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
