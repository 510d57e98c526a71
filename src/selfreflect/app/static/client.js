/** Sends requests to the JSON API and follows its event streams. A token comes with the address and stays in this browser, for other tabs. */

const STORED = "selfreflect-token";

/** Milliseconds between two requests for new events. */
const POLL = 500;

/** An error response, with its `kind`, `message` and `details`. */
export class ApiError extends Error {
  constructor(status, kind, message, details = "") {
    super(message);
    this.status = status;
    this.kind = kind;
    this.details = details;
  }
}

/** Moves the token out of the address, so that it is not copied along. What cannot be a token is dropped. */
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  if (/^[!-~]+$/.test(token)) localStorage.setItem(STORED, token);
  history.replaceState(null, "", location.pathname);
}

function headers(more = {}) {
  const token = localStorage.getItem(STORED);
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
  const { kind, message, details } = body?.error ?? {};
  throw new ApiError(response.status, kind ?? "http", message ?? `The app answered with status ${response.status}.`, details);
}

export const get = async (path) => (await fetched(path, { headers: headers() })).json();

export async function post(path, body) {
  const sent = body === undefined ? { headers: headers() } : { headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  return (await fetched(path, { method: "POST", ...sent })).json();
}

let fetchedOptions = null;

/** What the server offers. Fetched once, and again only after an error. */
export function options() {
  fetchedOptions ??= get("/api/options").catch((error) => {
    fetchedOptions = null;
    throw error;
  });
  return fetchedOptions;
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
 *
 * A browser opens six connections to a server, and a stream holds one as long as it lasts. So only one tab streams, the one that has the
 * lock, and the others ask again and again. Without locks, as on addresses that a browser does not trust, all of them ask.
 */
export function follow(path, heard, lost, signal) {
  if (navigator.locks === undefined) return followBy(false, path, heard, lost, signal);
  return navigator.locks.request("selfreflect-stream", { ifAvailable: true }, (lock) => followBy(lock !== null, path, heard, lost, signal));
}

async function followBy(streaming, path, heard, lost, signal) {
  const address = streaming ? path : `${path}?wait=false`;
  let last = 0;
  for (let pause = POLL; ; pause = Math.min(2 * pause, 5000)) {
    try {
      const response = await fetched(address, { headers: headers({ "Last-Event-ID": `${last}` }), signal });
      if (!streaming) pause = POLL;
      for await (const event of eventsOf(response.body)) {
        pause = POLL;
        last = event.id;
        heard(event.kind, event.data);
        if (event.kind === "end") return;
      }
      if (streaming) lost("The connection was closed. Trying again.");
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
