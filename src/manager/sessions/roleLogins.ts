import { createHmac } from "node:crypto";
import { toReport } from "../../shared/errors.js";
import type { RoleLogin } from "../../shared/ipc/executorMessages.js";
import type { Administrator } from "../../shared/ipc/managerMessages.js";
import type { Log } from "../../shared/log.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { scramVerifier } from "../../shared/postgres/auth/scram.js";
import { connectClient, disconnect, type Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { ExecutorThreads } from "./executorThreads.js";
import { readRole, type FoundRole } from "./roles.sql.js";

/** Marks a login that pg-task has made: only then does it set its password. */
const madeLoginComment = "pg-task login: runs the tasks of one role; its password is pg-task's";

/** `refused`: no task of the role can run until somebody acts, so those that are due fail. `failed`: try again later. */
export type LoginOutcome =
  | { readonly state: "ready"; readonly max: number }
  | { readonly state: "refused" | "failed"; readonly reason: string };

interface RoleLoginsComponents {
  readonly table: TaskTable;
  readonly administrator: Administrator | null;
  /** Reconfigured when the logins have changed. */
  readonly executors: Pick<ExecutorThreads, "reconfigure">;
  readonly log: Log;
}

/**
 * The logins of the roles whose tasks run in sessions of their own. Each is the role itself or a member of it that the
 * administrator has made, or `task_ROLE`, which pg-task makes as a member of nothing but the role, with a new password
 * for each process. If the server refuses such a login, because a task has changed it, say, it is made as it was.
 */
export class RoleLogins {
  readonly #components: RoleLoginsComponents;
  readonly #logins = new Map<string, RoleLogin>();
  /** Roles whose login has its password. */
  readonly #renewed = new Set<string>();

  constructor(components: RoleLoginsComponents) {
    this.#components = components;
  }

  get all(): Readonly<Record<string, RoleLogin>> {
    return Object.fromEntries(this.#logins);
  }

  /** The server has refused the login. A task may have changed its password or its settings. */
  rejected(role: string): void {
    this.#renewed.delete(role);
  }

  async prepare(client: Client, role: string): Promise<LoginOutcome> {
    const found = await readRole(client, this.#components.table, role, madeLoginComment);
    const reason = whyRefused(found);
    if (found === null || reason !== null) return { state: "refused", reason: reason ?? "" };
    const isMade = found.made || !found.login_exists;
    const password = isMade ? this.#passwordOf(found.login) : null;
    const settings = found.login === role ? {} : Object.fromEntries(found.settings);
    if (isMade && (!this.#renewed.has(role) || found.set_in.length > 0)) {
      if (password === null)
        return { state: "failed", reason: "pg-task knows no administrator that could make its login" };
      try {
        await this.#make(role, found, password);
      } catch (error) {
        return { state: "failed", reason: makingFailed(found, toReport(error).message) };
      }
    }
    this.#set(role, { user: found.login, password, settings });
    return { state: "ready", max: found.max ?? Infinity };
  }

  /** The same for all managers of this process, so that they do not set it in turns. */
  #passwordOf(login: string): string | null {
    const secret = this.#components.administrator?.secret;
    return secret === undefined ? null : createHmac("sha256", secret).update(login).digest("base64url");
  }

  #set(role: string, login: RoleLogin): void {
    const known = this.#logins.get(role);
    if (known !== undefined && JSON.stringify(known) === JSON.stringify(login)) return;
    this.#logins.set(role, login);
    this.#components.executors.reconfigure();
  }

  async #make(role: string, found: FoundRole, password: string): Promise<void> {
    const { administrator, log } = this.#components;
    const target = administrator?.target;
    if (target === undefined) throw new Error("no administrator");
    const admin = await connectClient(target, {
      applicationName: applicationNames.supervisor,
      writable: true,
      settings: { lock_timeout: "10s" },
    });
    try {
      await admin.query("BEGIN");
      for (const statement of await makingStatements(role, found, password)) await admin.query(statement);
      await admin.query("COMMIT");
    } finally {
      await disconnect(admin).catch(() => {});
    }
    this.#renewed.add(role);
    log.info({ role, login: found.login }, found.login_exists ? "password of a login renewed" : "login of a role made");
  }
}

async function makingStatements(role: string, found: FoundRole, password: string): Promise<string[]> {
  const login = identifier(found.login);
  const options = `CONNECTION LIMIT ${found.max ?? -1} PASSWORD ${literal(await scramVerifier(password))}`;
  // A task may have changed the settings of the login that it runs as.
  const own = found.login_exists
    ? [
        `ALTER ROLE ${login} ${options}`,
        ...found.set_in.map((database) =>
          database === null
            ? `ALTER ROLE ${login} RESET ALL`
            : `ALTER ROLE ${login} IN DATABASE ${identifier(database)} RESET ALL`,
        ),
      ]
    : [`CREATE ROLE ${login} LOGIN INHERIT ${options}`, `COMMENT ON ROLE ${login} IS ${literal(madeLoginComment)}`];
  if (found.is_member) return own;
  const grantOptions = found.version >= 160_000 ? " WITH INHERIT TRUE, SET TRUE" : "";
  return [...own, `GRANT ${identifier(role)} TO ${login}${grantOptions}`];
}

function whyRefused(found: FoundRole | null): string | null {
  if (found === null) return "it is not in the list of roles any more";
  if (!found.role_exists) return "it does not exist any more";
  if (found.is_super) return `it or its login ${found.login} is a superuser`;
  if (!found.login_exists && !found.may_be_made) return `its login ${found.login} does not exist`;
  if (found.login_exists && !found.can_login) return `its login ${found.login} may not log in`;
  return null;
}

function makingFailed({ login, version }: FoundRole, message: string): string {
  const needs =
    version >= 160_000
      ? "pg-task's control connection needs CREATEROLE, and the role WITH ADMIN OPTION"
      : "pg-task's control connection needs CREATEROLE";
  return `its login ${login} could not be made (${needs}): ${message}`;
}
