// Runs Node clients, unchanged, against one base URL, and prints what they got as one JSON object
// {case: {value} or {error}}. The test that starts it is the judge.
//
//   node clients.mjs BASE_URL MODEL TOOL_SETTINGS

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const [baseURL, model, toolSettings] = process.argv.slice(2);
const oneToolCall = JSON.parse(toolSettings);

const prompt = "hello";
const messages = [{ role: "user", content: prompt }];
const weather = {
  type: "object",
  properties: { city: { type: "string", maxLength: 10 } },
  required: ["city"],
};

const openai = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
const tiergate = createOpenAICompatible({ name: "tiergate", baseURL, includeUsage: true });
const noUsage = createOpenAICompatible({ name: "tiergate", baseURL });
const once = { maxRetries: 0, maxOutputTokens: 5 };

async function chunksOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

async function openaiStream(options) {
  const chunks = await chunksOf(
    await openai.chat.completions.create({ model, messages, max_tokens: 5, stream: true, ...options }),
  );
  return {
    text: chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""),
    withoutChoices: chunks.filter((chunk) => chunk.choices.length === 0).length,
    usage: chunks.map((chunk) => chunk.usage).filter(Boolean),
  };
}

async function aiStream(provider) {
  let failure = null;
  const result = streamText({
    model: provider(model),
    prompt,
    ...once,
    onError: ({ error }) => (failure = error),
  });
  const parts = await chunksOf(result.textStream);
  if (failure) throw failure;
  return {
    parts,
    outputTokens: (await result.usage).outputTokens ?? null,
    finishReason: await result.finishReason,
  };
}

const cases = {
  async openai_chat() {
    const answer = await openai.chat.completions.create({ model, messages, max_tokens: 5 });
    return {
      text: answer.choices[0].message.content,
      tokens: answer.usage.completion_tokens,
      requestId: answer._request_id,
    };
  },
  openai_stream: () => openaiStream({}),
  openai_stream_with_usage: () => openaiStream({ stream_options: { include_usage: true } }),
  async openai_tool() {
    const answer = await openai.chat.completions.create({
      model,
      messages,
      tools: [{ type: "function", function: { name: "weather", parameters: weather } }],
      tool_choice: "required",
      max_tokens: 200,
      ...oneToolCall,
    });
    return answer.choices[0].message.tool_calls.map((call) => call.function);
  },
  async openai_embeddings() {
    const answer = await openai.embeddings.create({ model, input: ["hello", "another"] });
    return answer.data.map((item) => item.embedding);
  },
  async openai_models() {
    return (await chunksOf(await openai.models.list())).map((card) => card.id);
  },
  openai_unknown_model: () => openai.chat.completions.create({ model: "gpt-9", messages }),
  openai_refused: () => openai.chat.completions.create({ model, messages: "hello" }),
  openai_abort: async () => {
    const stream = await openai.chat.completions.create({
      model,
      messages,
      max_tokens: 20000,
      stream: true,
    });
    let seen = 0;
    for await (const chunk of stream) {
      seen += chunk.choices.length;
      if (seen === 3) break;
    }
    return seen;
  },
  async ai_generate() {
    const answer = await generateText({ model: tiergate(model), prompt, ...once });
    return { text: answer.text, tokens: answer.usage.outputTokens };
  },
  ai_stream: () => aiStream(noUsage),
  ai_stream_with_usage: () => aiStream(tiergate),
  async ai_tool() {
    const answer = await generateText({
      model: tiergate(model),
      prompt,
      tools: { weather: tool({ inputSchema: jsonSchema(weather) }) },
      toolChoice: "required",
      maxRetries: 0,
      maxOutputTokens: 200,
      providerOptions: { tiergate: oneToolCall },
    });
    return answer.toolCalls.map((call) => ({ name: call.toolName, input: call.input }));
  },
  async ai_embeddings() {
    const answer = await embedMany({
      model: tiergate.embeddingModel(model),
      values: ["hello", "another"],
      maxRetries: 0,
    });
    return answer.embeddings;
  },
  ai_unknown_model: () => generateText({ model: tiergate("gpt-9"), prompt, ...once }),
};

const results = {};
for (const [name, run] of Object.entries(cases)) {
  try {
    results[name] = { value: await run() };
  } catch (error) {
    results[name] = {
      error: {
        name: error.constructor.name,
        message: error.message,
        status: error.status ?? error.statusCode ?? null,
        code: error.code ?? null,
        body: error.responseBody ?? null,
      },
    };
  }
}
console.log(JSON.stringify(results));
