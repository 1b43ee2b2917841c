/** SQLSTATEs that several modules know, under the names of PostgreSQL's error conditions. */
export const connectionNotEstablished = "08001";
export const connectionFailure = "08006";
export const characterNotInRepertoire = "22021";
export const untranslatableCharacter = "22P05";
export const notNullViolation = "23502";
export const uniqueViolation = "23505";
export const checkViolation = "23514";
export const readOnlyTransaction = "25006";
export const failedTransaction = "25P02";
export const noActiveTransaction = "25P01";
export const serializationFailure = "40001";
export const deadlockDetected = "40P01";
export const insufficientPrivilege = "42501";
export const undefinedColumn = "42703";
export const invalidSchemaName = "3F000";
const undefinedFunction = "42883";
export const undefinedTable = "42P01";
export const checkOptionViolation = "44000";
export const tooManyConnections = "53300";
export const lockNotAvailable = "55P03";
export const queryCanceled = "57014";
/** The server is starting, stopping or recovering. Another server may be available. */
export const cannotConnectNow = "57P03";

/** Whether the SQLSTATE says that a table, a function, or the schema of one does not exist. */
export const isUndefinedObject = (state: string | null | undefined): boolean =>
  state === undefinedTable || state === undefinedFunction || state === invalidSchemaName;
