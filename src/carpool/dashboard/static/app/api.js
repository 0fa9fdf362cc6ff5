// Requests to the dashboard's process, which forwards those below api/daemon to the daemon.

import { forget, token } from "./session.js";

/** An error's answer: `message` says what is wrong, `hint` what to do. */
export class ApiProblem extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code ?? "";
    this.hint = error.hint ?? "";
  }

  get text() {
    return this.hint ? `${this.message} (${this.hint})` : this.message;
  }
}

async function problem(answer) {
  if (answer.status === 401) forget();
  let error = { message: `the dashboard answered ${answer.status}` };
  try {
    error = (await answer.json()).error ?? error;
  } catch {
    // no JSON: the status says what there is to say
  }
  return new ApiProblem(answer.status, error);
}

/** The answer, whose body has not been read.  Raises ApiProblem. */
export async function ask(method, path, body, signal) {
  const headers = { "Carpool-Token": token() ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem(0, { message: "the dashboard does not answer", hint: "is `carpool dashboard` still running?" });
  }
  if (!answer.ok) throw await problem(answer);
  return answer;
}

/** The answer's JSON.  Raises ApiProblem. */
export async function get(path, signal) {
  return (await ask("GET", path, undefined, signal)).json();
}

export async function send(method, path, body) {
  const answer = await ask(method, path, body);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** A path with its query; null and undefined are left out. */
export function withQuery(path, query) {
  const parts = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return parts.length ? `${path}?${new URLSearchParams(parts)}` : path;
}
