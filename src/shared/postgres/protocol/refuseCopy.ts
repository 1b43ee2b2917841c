import { MessageCode, type ServerError } from "./decode.js";
import { encodeCopyFail } from "./encode.js";

/** A task has no client that could send data to the server. */
const reason = "COPY FROM STDIN is not supported";
const refusal = encodeCopyFail(reason);

export const isCopyRefusal = ({ message }: Pick<ServerError, "message">): boolean => message.endsWith(reason);

export function copyRefusal(code: number): Buffer | null {
  return code === MessageCode.copyInResponse || code === MessageCode.copyBothResponse ? refusal : null;
}
