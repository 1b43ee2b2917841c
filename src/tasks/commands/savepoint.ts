import { sqlState, type Queryable } from "../../shared/postgres/client.js";
import { noActiveTransaction } from "../../shared/postgres/sqlStates.js";

const name = "pg_task_change";

/** Drivers that do not tell are made to set a savepoint, which the server refuses (and logs) outside a transaction. */
export async function isInTransaction(client: Queryable): Promise<boolean> {
  if (tellsStatus(client)) {
    const status = client.getTransactionStatus();
    if (status !== null) return status !== "I";
  }
  try {
    await client.query(`SAVEPOINT ${name}`);
  } catch (error) {
    if (sqlState(error) === noActiveTransaction) return false;
    throw error;
  }
  await client.query(`RELEASE SAVEPOINT ${name}`);
  return true;
}

/** Newer versions of the pg driver have this method: `I` is idle, `T` is in a transaction, `E` is in an aborted one. */
interface StatusTeller {
  getTransactionStatus(): "I" | "T" | "E" | null;
}

const tellsStatus = (client: object): client is StatusTeller =>
  "getTransactionStatus" in client && typeof client.getTransactionStatus === "function";

/** Runs `work`, which is in a transaction, so that an error of the server leaves the transaction usable. */
export async function runInSavepoint<T>(client: Queryable, work: () => Promise<T>): Promise<T> {
  await client.query(`SAVEPOINT ${name}`);
  let result: T;
  try {
    result = await work();
  } catch (error) {
    if (sqlState(error) !== null) {
      await client.query(`ROLLBACK TO SAVEPOINT ${name}; RELEASE SAVEPOINT ${name}`);
    }
    throw error;
  }
  await client.query(`RELEASE SAVEPOINT ${name}`);
  return result;
}
