import { PgTaskError, withMessage } from "../../shared/errors.js";
import { nearestName } from "../../shared/nearestName.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";

const weekdays = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/** Adds to the refusal of a zone or of weekdays what may be meant. The server's messages must be in English. */
export async function withSuggestion(client: Client, error: unknown): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.sqlState !== "22023") return error;
  const { message } = error;
  const zone = /time zone "([^"]+)" not recognized/.exec(message)?.[1];
  const days = /: weekday: '([^']+)' is not understood/.exec(message)?.[1];
  const suggestion =
    zone === undefined ? days && suggestWeekdays(days) : await suggestZone(client, zone).catch(ignoreServerError);
  return suggestion === undefined ? error : withMessage(error, `${message}: ${suggestion}`);
}

function ignoreServerError(error: unknown): undefined {
  if (sqlState(error) === null) throw error;
}

async function suggestZone(client: Client, zone: string): Promise<string | undefined> {
  const { rows } = await client.query<{ name: string }>(
    "SELECT name FROM pg_catalog.pg_timezone_names WHERE name !~ '^(posix|right)/' ORDER BY name",
  );
  const names = rows.map(({ name }) => name);
  const city = cityOf(zone.replaceAll(" ", "_"));
  const ofCity = zonesOf(city, names);
  if (ofCity.length > 0) return describeZones(ofCity);
  const near = nearestName(zone, names);
  if (near !== undefined) return describeZones([near]);
  const nearCity = zone.includes("/") ? undefined : nearestName(city, names.map(cityOf));
  return nearCity === undefined ? undefined : describeZones(zonesOf(nearCity, names));
}

const maxZones = 3;

const cityOf = (zone: string): string => (zone.split("/").at(-1) ?? "").toLowerCase();

const zonesOf = (city: string, names: readonly string[]): string[] => names.filter((name) => cityOf(name) === city);

const describeZones = (names: readonly string[]): string =>
  `perhaps ${names
    .slice(0, maxZones)
    .map((name) => `"${name}"`)
    .join(" or ")}`;

/** Returns the names of three letters for those that begin differently, such as `Mo-Fr` or `Monday`. */
function suggestWeekdays(given: string): string {
  const written = given.replace(
    /[a-z]{2,}/gi,
    (word) => weekdays.find((day) => day.startsWith(word.slice(0, 3).toUpperCase())) ?? word,
  );
  const isValid = written.split(/[-,]/).every((word) => weekdays.includes(word));
  return isValid ? `write ${written}` : `weekdays are ${weekdays.join(", ")}`;
}
