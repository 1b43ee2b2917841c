/**
 * What pg-task does with a keyword. `used` means that the keyword's value takes effect. `ignored` means that the
 * keyword affects neither security nor results in pg-task. `refused` means that ignoring the keyword would affect
 * security or results.
 */
type Treatment = "used" | "ignored" | "refused";

interface Keyword {
  readonly treatment: Treatment;
  /** The environment variable that gives the value if nothing else does. */
  readonly variable?: string;
  /** Remote tasks take the value from the manager's own connection instead of the variable. */
  readonly inherited?: true;
  /** The value must never be shown. */
  readonly secret?: true;
}

const used = (variable?: string): Keyword => keyword("used", variable);
const ignored = (variable?: string): Keyword => keyword("ignored", variable);
const refused = (variable?: string): Keyword => keyword("refused", variable);
const secret = (of: Keyword): Keyword => ({ ...of, secret: true });
const inherited = (variable: string): Keyword => ({ treatment: "used", variable, inherited: true });

function keyword(treatment: Treatment, variable: string | undefined): Keyword {
  return variable === undefined ? { treatment } : { treatment, variable };
}

/** Every keyword that PostgreSQL 18 allows in a connection string. */
const table = {
  service: refused("PGSERVICE"),
  servicefile: refused("PGSERVICEFILE"),
  user: inherited("PGUSER"),
  password: secret(used("PGPASSWORD")),
  passfile: used("PGPASSFILE"),
  channel_binding: used("PGCHANNELBINDING"),
  connect_timeout: inherited("PGCONNECT_TIMEOUT"),
  dbname: inherited("PGDATABASE"),
  host: inherited("PGHOST"),
  hostaddr: inherited("PGHOSTADDR"),
  port: inherited("PGPORT"),
  client_encoding: used("PGCLIENTENCODING"),
  options: used("PGOPTIONS"),
  application_name: used(),
  fallback_application_name: used(),
  keepalives: used(),
  keepalives_idle: used(),
  keepalives_interval: ignored(),
  keepalives_count: ignored(),
  tcp_user_timeout: ignored(),
  sslmode: inherited("PGSSLMODE"),
  sslnegotiation: used("PGSSLNEGOTIATION"),
  sslcompression: ignored("PGSSLCOMPRESSION"),
  sslcert: inherited("PGSSLCERT"),
  sslkey: inherited("PGSSLKEY"),
  sslcertmode: used("PGSSLCERTMODE"),
  sslpassword: secret(used()),
  sslrootcert: inherited("PGSSLROOTCERT"),
  sslcrl: used("PGSSLCRL"),
  sslcrldir: refused("PGSSLCRLDIR"),
  sslsni: used("PGSSLSNI"),
  sslkeylogfile: refused(),
  requirepeer: refused("PGREQUIREPEER"),
  require_auth: used("PGREQUIREAUTH"),
  min_protocol_version: used("PGMINPROTOCOLVERSION"),
  max_protocol_version: used("PGMAXPROTOCOLVERSION"),
  ssl_min_protocol_version: used("PGSSLMINPROTOCOLVERSION"),
  ssl_max_protocol_version: used("PGSSLMAXPROTOCOLVERSION"),
  gssencmode: used("PGGSSENCMODE"),
  krbsrvname: ignored("PGKRBSRVNAME"),
  gsslib: ignored("PGGSSLIB"),
  gssdelegation: ignored("PGGSSDELEGATION"),
  replication: refused(),
  target_session_attrs: used("PGTARGETSESSIONATTRS"),
  load_balance_hosts: used("PGLOADBALANCEHOSTS"),
  scram_client_key: secret(refused()),
  scram_server_key: secret(refused()),
  oauth_issuer: refused(),
  oauth_client_id: refused(),
  oauth_client_secret: secret(refused()),
  oauth_scope: refused(),
} as const satisfies Readonly<Record<string, Keyword>>;

export type KeywordName = keyof typeof table;

export const keywords: Readonly<Record<KeywordName, Keyword>> = table;

export function isKeyword(text: string): text is KeywordName {
  return Object.hasOwn(keywords, text);
}
