import { MessageCode } from "./decode.js";
import { encodeCopyFail } from "./encode.js";

/** A task has no client that could send data to the server. */
const refusal = encodeCopyFail("COPY FROM STDIN is not supported");

/** Returns the answer to a server's message that asks for the data of a COPY, or null if the message does not. */
export function copyRefusal(code: number): Buffer | null {
  return code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse ? refusal : null;
}
