// What goes wrong on purpose: a sentence, what to do, and the status that the HTTP API would answer.

export class RequestError extends Error {
  constructor(status, message, { hint = "", code = "bad_input" } = {}) {
    super(message);
    Object.assign(this, { status, hint, code });
  }
}

/** The error of a request for something that is not there. */
export const missing = (message, hint) => new RequestError(404, message, { hint, code: "not_found" });
