import { MessageCode, type ServerError } from "./decode.js";
import { encodeCopyFail } from "./encode.js";

/** A task has no client that could send data to the server. */
const reason = "COPY FROM STDIN is not supported";
const refusal = encodeCopyFail(reason);

/** Returns whether this is the error by which the server answers `copyRefusal`. The server quotes the reason in it. */
export const isCopyRefusal = ({ message }: Pick<ServerError, "message">): boolean => message.endsWith(reason);

/** Returns the answer to a message in which the server asks for the data of a COPY; null for any other message. */
export function copyRefusal(code: number): Buffer | null {
  return code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse ? refusal : null;
}
