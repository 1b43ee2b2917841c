import { kept, mapped, notMapped, type Source, type SourceJob } from "./source.js";

interface Property {
  readonly name: string;
  readonly value: string;
  readonly line: string;
}

interface Component {
  readonly name: string;
  readonly lines: string[];
  readonly parts: Component[];
}

const dateNames = new Set(["DTSTART", "RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID"]);

/** The events of a calendar whose description is SQL. Nothing runs them there, so nothing has to be switched off. */
export function readIcs(text: string, zone: string | undefined): Source {
  const root = parse(text);
  const calendars = root.parts.filter(({ name }) => name === "VCALENDAR");
  const all = calendars.flatMap((calendar) => calendar.parts.map((part) => ({ calendar, part })));
  const counts = new Map<string, number>();
  const jobs = all
    .filter(({ part }) => part.name !== "VTIMEZONE")
    .map(({ calendar, part }) => {
      const name = valueOf(part, "SUMMARY") ?? valueOf(part, "UID") ?? part.name;
      const count = (counts.get(name) ?? 0) + 1;
      counts.set(name, count);
      const key = `ics ${name}${count === 1 ? "" : ` ${count}`}`;
      return toJob({ key, id: key, name, database: null, owner: null, active: true }, part, calendar, zone);
    });
  return {
    jobs,
    awaitMoment: () => Promise.resolve(),
    switchJobs: async ({ ids }, settle) => {
      const since = new Date().toISOString();
      await settle(new Map(ids.map((id) => [id, since])));
    },
  };
}

function toJob(
  found: Omit<SourceJob, "notes" | "define">,
  event: Component,
  calendar: Component,
  zone: string | undefined,
): SourceJob {
  if (event.name !== "VEVENT") return notMapped(found, `it is no event, but a ${event.name}`);
  if (valueOf(event, "STATUS") === "CANCELLED") return notMapped(found, "it is cancelled");
  const input = valueOf(event, "DESCRIPTION") ?? "";
  if (input.trim() === "") return notMapped(found, "it has no DESCRIPTION, which would be the SQL");
  const dates = properties(event).filter(({ name }) => dateNames.has(name));
  const start = dates.find(({ name }) => name === "DTSTART");
  if (start === undefined) return notMapped(found, "it has no DTSTART");
  const repeats = dates.some(({ name }) => name === "RRULE" || name === "RDATE");
  // An event that does not repeat is a rule with a single time.
  const once = repeats ? [] : [start.line.replace(/^DTSTART/i, "RDATE")];
  const zones = calendar.parts.filter(({ name }) => name === "VTIMEZONE").map((part) => write(part));
  const lines = dates.map(({ line }) => line);
  const rule = ["BEGIN:VCALENDAR", ...zones, "BEGIN:VEVENT", ...lines, ...once, "END:VEVENT", "END:VCALENDAR"].join(
    "\n",
  );
  const isLocal = !/;TZID=/i.test(start.line) && !/Z$/i.test(start.value);
  const local = zone ?? valueOf(calendar, "X-WR-TIMEZONE");
  const given = isLocal && local !== undefined ? { zone: local } : {};
  return mapped(found, { ...kept, ...given, rule, group: found.key, input });
}

function parse(text: string): Component {
  const root: Component = { name: "", lines: [], parts: [] };
  const open = [root];
  for (const line of text
    .replace(/\r\n?/g, "\n")
    .replace(/\n[ \t]/g, "")
    .split("\n")) {
    const [, mark, name = ""] = /^(BEGIN|END):(.*?)\s*$/i.exec(line) ?? [];
    const current = open.at(-1) ?? root;
    if (mark === undefined) current.lines.push(line);
    else if (mark.toUpperCase() === "END") open.pop();
    else {
      const part: Component = { name: name.toUpperCase(), lines: [], parts: [] };
      current.parts.push(part);
      open.push(part);
    }
  }
  return root;
}

const write = ({ name, lines, parts }: Component): string =>
  [`BEGIN:${name}`, ...lines, ...parts.map(write), `END:${name}`].join("\n");

const properties = ({ lines }: Component): Property[] =>
  lines.flatMap((line) => {
    const [, name, value = ""] = /^([\w-]+)(?:;(?:[^":]|"[^"]*")*)?:(.*)$/.exec(line) ?? [];
    return name === undefined ? [] : [{ name: name.toUpperCase(), value, line }];
  });

const valueOf = (component: Component, wanted: string): string | undefined =>
  properties(component)
    .find(({ name }) => name === wanted)
    ?.value.replace(/\\([nN,;\\])/g, (_, character: string) => (/n/i.test(character) ? "\n" : character));
