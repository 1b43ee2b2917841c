import { MessageCode } from "./decode.js";
import { encodeCopyFail } from "./encode.js";

/** A task has no client that could send data to the server. */
const refusal = encodeCopyFail("COPY FROM STDIN is not supported");

/** Returns the answer to a message in which the server asks for the data of a COPY; null for any other message. */
export function copyRefusal(code: number): Buffer | null {
  return code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse ? refusal : null;
}
