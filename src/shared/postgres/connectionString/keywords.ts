/**
 * What becomes of a keyword: it is used; it has no effect here and none on security or meaning; or
 * it is refused, since leaving it out would change one of the two.
 */
type Treatment = "used" | "harmless" | "refused";

interface Keyword {
  readonly treatment: Treatment;
  /** The environment variable that stands in for it. */
  readonly variable?: string;
}

const used = (variable?: string): Keyword => keyword("used", variable);
const harmless = (variable?: string): Keyword => keyword("harmless", variable);
const refused = (variable?: string): Keyword => keyword("refused", variable);

function keyword(treatment: Treatment, variable: string | undefined): Keyword {
  return variable === undefined ? { treatment } : { treatment, variable };
}

/**
 * Every keyword of a connection string, as PostgreSQL 18 knows them. Those without a variable that
 * libpq has one for get their default from the manager's own connection.
 */
const table = {
  service: refused("PGSERVICE"),
  servicefile: refused("PGSERVICEFILE"),
  user: used(),
  password: used("PGPASSWORD"),
  passfile: used("PGPASSFILE"),
  channel_binding: used("PGCHANNELBINDING"),
  connect_timeout: used(),
  dbname: used(),
  host: used(),
  hostaddr: used(),
  port: used(),
  client_encoding: used("PGCLIENTENCODING"),
  options: used("PGOPTIONS"),
  application_name: used(),
  fallback_application_name: used(),
  keepalives: used(),
  keepalives_idle: used(),
  keepalives_interval: harmless(),
  keepalives_count: harmless(),
  tcp_user_timeout: harmless(),
  sslmode: used(),
  sslnegotiation: used("PGSSLNEGOTIATION"),
  sslcompression: harmless("PGSSLCOMPRESSION"),
  sslcert: used(),
  sslkey: used(),
  sslcertmode: used("PGSSLCERTMODE"),
  sslpassword: used(),
  sslrootcert: used(),
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
  krbsrvname: harmless("PGKRBSRVNAME"),
  gsslib: harmless("PGGSSLIB"),
  gssdelegation: harmless("PGGSSDELEGATION"),
  replication: refused(),
  target_session_attrs: used("PGTARGETSESSIONATTRS"),
  load_balance_hosts: used("PGLOADBALANCEHOSTS"),
  scram_client_key: refused(),
  scram_server_key: refused(),
  oauth_issuer: refused(),
  oauth_client_id: refused(),
  oauth_client_secret: refused(),
  oauth_scope: refused(),
} as const satisfies Readonly<Record<string, Keyword>>;

export type KeywordName = keyof typeof table;

export const keywords: Readonly<Record<KeywordName, Keyword>> = table;

export function isKeyword(text: string): text is KeywordName {
  return Object.hasOwn(keywords, text);
}
