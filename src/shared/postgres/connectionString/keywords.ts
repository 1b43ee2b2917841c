/** A keyword and its value, both unchecked. */
export type Pair = readonly [keyword: string, value: string];

interface Keyword {
  /** The environment variable that gives the value if nothing else does. */
  readonly variable?: string;
  readonly inherited?: true;
  readonly secret?: true;
  /** What to do instead. Without it, the keyword is accepted; with it, ignoring it would affect security or results. */
  readonly remedy?: string;
}

const accepted = (variable?: string): Keyword => (variable === undefined ? {} : { variable });
const inherited = (variable: string): Keyword => ({ variable, inherited: true });
const secret = (of: Keyword): Keyword => ({ ...of, secret: true });
const refused = (remedy: string, variable?: string): Keyword => ({ ...accepted(variable), remedy });

const givePassword = "give the password, or a client certificate with sslcert and sslkey";

/** Every keyword that PostgreSQL 18 allows in a connection string. */
const table = {
  service: refused("give the settings of the service file themselves: host, port, dbname, user and so on", "PGSERVICE"),
  servicefile: refused("give the settings of the service file themselves: host, port, dbname, user and so on"),
  user: inherited("PGUSER"),
  password: secret(accepted("PGPASSWORD")),
  passfile: accepted("PGPASSFILE"),
  channel_binding: accepted("PGCHANNELBINDING"),
  connect_timeout: inherited("PGCONNECT_TIMEOUT"),
  dbname: inherited("PGDATABASE"),
  host: inherited("PGHOST"),
  hostaddr: inherited("PGHOSTADDR"),
  port: inherited("PGPORT"),
  client_encoding: accepted("PGCLIENTENCODING"),
  options: accepted("PGOPTIONS"),
  application_name: accepted(),
  fallback_application_name: accepted(),
  keepalives: accepted(),
  keepalives_idle: accepted(),
  keepalives_interval: accepted(),
  keepalives_count: accepted(),
  tcp_user_timeout: accepted(),
  sslmode: inherited("PGSSLMODE"),
  sslnegotiation: accepted("PGSSLNEGOTIATION"),
  sslcompression: accepted("PGSSLCOMPRESSION"),
  sslcert: inherited("PGSSLCERT"),
  sslkey: inherited("PGSSLKEY"),
  sslcertmode: accepted("PGSSLCERTMODE"),
  sslpassword: secret(accepted()),
  sslrootcert: inherited("PGSSLROOTCERT"),
  sslcrl: accepted("PGSSLCRL"),
  sslcrldir: refused("put the revocation lists into one file, and name it with sslcrl", "PGSSLCRLDIR"),
  sslsni: accepted("PGSSLSNI"),
  sslkeylogfile: refused("remove it"),
  requirepeer: refused("connect to the server's address, and verify its certificate with sslmode", "PGREQUIREPEER"),
  require_auth: accepted("PGREQUIREAUTH"),
  min_protocol_version: accepted("PGMINPROTOCOLVERSION"),
  max_protocol_version: accepted("PGMAXPROTOCOLVERSION"),
  ssl_min_protocol_version: accepted("PGSSLMINPROTOCOLVERSION"),
  ssl_max_protocol_version: accepted("PGSSLMAXPROTOCOLVERSION"),
  gssencmode: accepted("PGGSSENCMODE"),
  krbsrvname: accepted("PGKRBSRVNAME"),
  gsslib: accepted("PGGSSLIB"),
  gssdelegation: accepted("PGGSSDELEGATION"),
  replication: refused("remove it"),
  target_session_attrs: accepted("PGTARGETSESSIONATTRS"),
  load_balance_hosts: accepted("PGLOADBALANCEHOSTS"),
  scram_client_key: secret(refused(givePassword)),
  scram_server_key: secret(refused(givePassword)),
  oauth_issuer: refused(givePassword),
  oauth_client_id: refused(givePassword),
  oauth_client_secret: secret(refused(givePassword)),
  oauth_scope: refused(givePassword),
} as const satisfies Readonly<Record<string, Keyword>>;

export type KeywordName = keyof typeof table;

export const keywords: Readonly<Record<KeywordName, Keyword>> = table;

export function isKeyword(text: string): text is KeywordName {
  return Object.hasOwn(keywords, text);
}

export const refusedKeywords = Object.keys(keywords)
  .filter(isKeyword)
  .filter((name) => keywords[name].remedy !== undefined);
