// What fails, everywhere in this package.

/** `code` is a status code of the runtime: "InvalidArgument", "NotFound", "Unsupported", ... */
export class IngotError extends Error {
  constructor(code, message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "IngotError";
    this.code = code;
  }
}
