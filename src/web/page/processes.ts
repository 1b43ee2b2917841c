import { html } from "htm/preact";
import type { VNode } from "preact";
import type { ProcessInfo, Processes } from "../api/schemas.js";
import { numberText, relativeTimeText } from "./format.js";
import { useResource } from "./resource.js";
import { Alert, DataTable, Facts, StaleNotice, tableHead, Time, unknown } from "./parts.js";
import { printableLine } from "../../shared/printable.js";

export function ProcessesView({ now }: { now: number }): VNode {
  const resource = useResource<Processes>("/processes", { minIntervalMs: 2_000, pollMs: 5_000 });
  const { value, busy } = resource;
  return html`<main id="main" class="processes" aria-busy=${busy}>
    <h1>Processes</h1>
    <${StaleNotice} of=${resource} />
    ${value !== null && content(value, now)}
  </main>`;
}

function content(processes: Processes, now: number): VNode {
  const { error, leader, otherLeaders } = processes;
  return html`${error !== null && html`<${Alert} text=${`The control database cannot be read: ${error}`} />`}
  ${error === null && leader === null && html`<${Alert} text="No process leads." />`}
  ${otherLeaders.map(
    ({ pid, address, database }) =>
      html`<p class="notice" key=${`${database} ${pid}`}>
        Another cluster has a leader on this server: backend ${pid}${address !== null && ` at ${address}`}, database
        ${" "}${printableLine(database)}
      </p>`,
  )}
  ${facts(processes)} ${members(processes, now)} ${managers(processes)}`;
}

function facts({ name, control, self, server, sessions }: Processes): VNode {
  const rows: (readonly [string, VNode | string])[] = [
    ["Cluster", printableLine(name)],
    ["Control database", `${printableLine(control.database)} · ${control.server}`],
    ["PostgreSQL", server?.version ?? unknown],
    [
      "Connections",
      server === null ? unknown : `${numberText(server.connections)} of ${numberText(server.maxConnections)}`,
    ],
    ["This process", html`${self.role}, process ${self.pid} on ${self.host}, since <${Time} at=${self.since} />`],
    ["pg-task", `${self.version}, Node.js ${self.node.replace(/^v/, "")}`],
    ["Sessions at most", numberText(sessions.most)],
  ];
  return html`<${Facts} class="panel settings" rows=${rows} />`;
}

function members({ leader, standbys, error }: Processes, now: number): VNode {
  const rows = [
    ...(leader === null ? [] : [{ role: "leader", process: leader }]),
    ...standbys.map((process) => ({ role: "standby", process })),
  ];
  return html`<section>
    <h2>Leader and standbys</h2>
    ${rows.length === 0 && html`<p class="empty panel">${error === null ? "No process is connected." : "Unknown."}</p>`}
    ${
      rows.length > 0 &&
      html`<${DataTable}
        class="cards"
        caption="Leader and standbys"
        focusable=${true}
        titles=${["Role", "Backend", "Address", "User", "Connected since"]}
        hidden="Note"
      >
        ${rows.map(
          ({ role, process }) =>
            html`<tr key=${process.pid}>
              <th scope="row"><span class=${`dot ${role === "leader" ? "good" : ""}`}></span>${role}</th>
              <td data-title="Backend">${process.pid}</td>
              <td data-title="Address">${process.address ?? "local"}</td>
              <td data-title="User">${process.user === null ? unknown : printableLine(process.user)}</td>
              <td data-title="Connected since">${sinceView(process, now)}</td>
              <td>${process.isThis && html`<span class="tag">this process</span>`}</td>
            </tr>`,
        )}
      <//>`
    }
  </section>`;
}

function sinceView({ since }: ProcessInfo, now: number): VNode | string {
  if (since === null) return unknown;
  return html`<${Time} at=${since} /> <small>${relativeTimeText(since, now)}</small>`;
}

function managers({ managers: list }: Processes): VNode {
  return html`<section>
    <h2>Managers and sessions</h2>
    <${DataTable}
      class="cards"
      caption="Managers and sessions of the tables"
      titles=${["Table", "Manager", "Backend", "Serving since", "Sessions", "Running", "PostgreSQL", "Table version"]}
    >
      ${list.map((table) => {
        const { process, sessions, running, serverVersion, tableVersion, latestVersion } = table;
        return html`<tr key=${table.id}>
          ${tableHead(table)}
          <td class="reason" data-title="Manager">${managerText(table)}</td>
          <td data-title="Backend">
            ${process === null ? unknown : `${process.pid}${process.address === null ? "" : ` at ${process.address}`}`}
          </td>
          <td data-title="Serving since">
            ${process === null || process.since === null ? unknown : html`<${Time} at=${process.since} />`}
          </td>
          <td data-title="Sessions">${sessions === null ? unknown : numberText(sessions)}</td>
          <td data-title="Running">${running === null ? unknown : numberText(running)}</td>
          <td data-title="PostgreSQL">${serverVersion ?? unknown}</td>
          <td data-title="Table version">${versionText(tableVersion, latestVersion)}</td>
        </tr>`;
      })}
    <//>
  </section>`;
}

function managerText({ manager, process, error }: Processes["managers"][number]): VNode {
  const isServed = process !== null;
  const state = manager?.state ?? (isServed ? "in another process" : "none");
  const kind = error !== null || !isServed ? "bad" : "good";
  const reason = manager?.reason ?? error;
  return html`<span class=${`dot ${kind}`}></span
    >${state}${reason !== null && html`<small>${printableLine(reason)}</small>`}`;
}

function versionText(version: number | null, latest: number): string {
  if (version === null) return unknown;
  if (version === latest) return String(version);
  return version < latest ? `${version}, not yet ${latest}` : `${version}, newer than this pg-task (${latest})`;
}
