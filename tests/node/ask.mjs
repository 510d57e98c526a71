// Ask the endpoint through the AI SDK: node ask.mjs ADDRESS FORM MODEL QUESTION
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [baseURL, form, name, prompt] = process.argv.slice(2);
const settings = { baseURL, apiKey: "none" };
const providers = {
  chat: (model) => createOpenAI(settings).chat(model),
  responses: (model) => createOpenAI(settings).responses(model),
  anthropic: (model) => createAnthropic(settings)(model),
  compatible: (model) => createOpenAICompatible({ ...settings, name: "selfreflect" })(model),
};
const provider = providers[form];
const whole = await generateText({ model: provider(name), prompt, maxRetries: 0 });
const stream = streamText({ model: provider(name), prompt, maxRetries: 0 });
let streamed = "";
for await (const part of stream.textStream) streamed += part;
const refused = await generateText({ model: provider("selfreflect/other"), prompt, maxRetries: 0 }).then(
  () => 200,
  (error) => error.statusCode,
);
console.log(
  JSON.stringify({ text: whole.text, streamed, finish: whole.finishReason, tokens: whole.usage.totalTokens, refused }),
);
