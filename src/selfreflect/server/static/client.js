/** Sends requests to the JSON API. A token comes with the address and stays in this browser, for other tabs. */

const STORED = "selfreflect-token";

/** An error response, with its HTTP status (0 without one), `message` and `remedy`. */
export class ApiError extends Error {
  constructor(status, message, remedy) {
    super(message);
    this.status = status;
    this.remedy = remedy;
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
    throw new ApiError(0, "The app does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const { message, remedy } = body?.error ?? {};
  throw new ApiError(response.status, message ?? `The app answered with status ${response.status}.`, remedy);
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

/** Milliseconds between two looks at a job. */
const POLL = 500;

/**
 * Calls `show(job)` with the state of a job, again and again until it ends. Its `answers` are all that there are. While the connection is
 * lost it calls `lost(message)`.
 */
export async function follow(id, show, lost, signal) {
  const answers = [];
  for (let pause = POLL; !signal.aborted; await new Promise((done) => setTimeout(done, pause))) {
    try {
      const job = await get(`/api/jobs/${id}?after=${answers.length}`);
      if (signal.aborted) return;
      answers.push(...job.answers);
      show({ ...job, answers });
      if (!["waiting", "running"].includes(job.status)) return;
      pause = POLL;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError && [0, 503].includes(error.status))) throw error;
      lost(error.message);
      pause = Math.min(2 * pause, 5000);
    }
  }
}
