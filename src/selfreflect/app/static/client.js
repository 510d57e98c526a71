/** Sends requests to the JSON API and follows its event streams. A token comes with the address and stays in this tab. */

const STORED = "selfreflect-token";

/** An error response, with its `kind` and `message`. */
export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

/** Moves the token out of the address, so that it is not copied along. */
export function takeToken() {
  const match = /^#token=([^&]+)$/.exec(location.hash);
  if (match === null) return;
  sessionStorage.setItem(STORED, decodeURIComponent(match[1]));
  history.replaceState(null, "", location.pathname);
}

function headers(more = {}) {
  const token = sessionStorage.getItem(STORED);
  return token === null ? more : { ...more, Authorization: `Bearer ${token}` };
}

async function fetched(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "connection", "The app does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.kind ?? "http", body?.error?.message ?? `The app answered with status ${response.status}.`);
}

export const get = async (path) => (await fetched(path, { headers: headers() })).json();

export async function post(path, body) {
  const sent = body === undefined ? { headers: headers() } : { headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  return (await fetched(path, { method: "POST", ...sent })).json();
}

/** Saves a response as a file. A plain link would not send the token. */
export async function download(path, name) {
  const address = URL.createObjectURL(await (await fetched(path, { headers: headers() })).blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Calls `heard(kind, data)` for every event of a job until it ends. After a lost connection it calls `lost(message)` and resumes with the
 * next event.
 */
export async function follow(path, heard, lost, signal) {
  let last = 0;
  for (let pause = 500; ; pause = Math.min(2 * pause, 5000)) {
    try {
      const response = await fetched(path, { headers: headers({ "Last-Event-ID": `${last}` }), signal });
      for await (const event of eventsOf(response.body)) {
        pause = 500;
        last = event.id;
        heard(event.kind, event.data);
        if (event.kind === "end") return;
      }
      lost("The connection was closed. Trying again.");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status !== 0 && error.status !== 503) throw error;
      lost(error.message);
    }
    await new Promise((done) => setTimeout(done, pause));
    if (signal.aborted) return;
  }
}

async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.has("data")) yield { id: Number(fields.get("id")), kind: fields.get("event"), data: JSON.parse(fields.get("data")) };
    }
  }
}
