import { errorMessage, systemErrorCode } from "./errors.js";

/** Where Node's message only repeats the code. */
const explanations: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EADDRINUSE: "another process uses this address",
  EADDRNOTAVAIL: "this machine has no such address",
  EAI_AGAIN: "the name server does not answer",
  ECONNREFUSED: "nothing listens there",
  ECONNRESET: "the other side closed the connection",
  EHOSTUNREACH: "no route to this host",
  EISDIR: "it is a folder",
  EMFILE: "this process has too many open files",
  ENETUNREACH: "no route to this network",
  ENOENT: "no such file or folder",
  ENOSPC: "no space left on the device",
  ENOTDIR: "a part of the path is not a folder",
  ENOTFOUND: "there is no host with this name",
  EPERM: "not permitted",
  EROFS: "the file system is read-only",
  ETIMEDOUT: "no answer in time",
};

/** Explains an error of the operating system, with its code. `own` explanations fit the situation better. */
export function explainSystemError(error: unknown, own: Readonly<Record<string, string>> = {}): string {
  const code = systemErrorCode(error);
  const text = own[code] ?? explanations[code];
  return text === undefined ? errorMessage(error) : `${text} (${code})`;
}
