/** A keyword and its value, both unchecked. */
export type Pair = readonly [keyword: string, value: string];

interface Keyword {
  /** The environment variable that gives the value if nothing else does. */
  readonly variable?: string;
  /** Remote tasks take the value from the manager's own connection instead of the variable. */
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

const pool = "remove it: it configures the connection pool of another program";
const prepared = "remove it: it configures another program's prepared statements";
const schema = "remove it, and give the task table's schema in its entry, or as pg_task.schema";
const pooler = "remove it, and give the server's own address, not a pooler's";
const timeout = "write connect_timeout, in seconds";

/** What to do about query parameters that ORMs, drivers and providers add to URLs, and libpq does not know. */
const remedies: Readonly<Record<string, string>> = {
  ...each("connection_limit pool_timeout socket_timeout max_connection_lifetime max_idle_connection_lifetime", pool),
  ...each("single_use_connections pool pool_size max_overflow checkout_timeout reaping_frequency", pool),
  ...each("pool_max_conns pool_min_conns pool_max_conn_lifetime pool_max_conn_idle_time", pool),
  ...each("idle_timeout min max idleTimeoutMillis connectionTimeoutMillis max_lifetime", pool),
  ...each("pool_health_check_period pool_max_conn_lifetime_jitter", pool),
  ...each("statement_cache_size statement_cache_capacity description_cache_capacity default_query_exec_mode", prepared),
  ...each("prepared_statements prepareThreshold preparedStatementCacheQueries binary_parameters", prepared),
  ...each("prepared_statement_cache_size prepared_statement_name_func prepare preferQueryMode", prepared),
  ...each("schema currentSchema search_path schema_search_path", schema),
  ...each("pgbouncer supa workaround", pooler),
  ...each("connectTimeout loginTimeout", timeout),
  sslaccept: "write sslmode=verify-full instead of strict, and sslmode=require instead of accept_invalid_certs",
  sslidentity: "write sslcert and sslkey, two PEM files",
  ...each("ssl sslfactory sslhostnameverifier uselibpqcompat", "remove it, and write sslmode, such as sslmode=require"),
  ApplicationName: "remove it: pg-task names its sessions itself",
  tcpKeepAlive: "write keepalives=1 or 0",
  targetServerType: "write target_session_attrs=primary",
  loadBalanceHosts: "write load_balance_hosts=random",
  encoding: "remove it: text is always exchanged as UTF-8",
  statement_timeout: "remove it, and limit tasks with pg_task.timeout",
  socketTimeout: "remove it, and limit tasks with pg_task.timeout",
  command_timeout: "remove it, and limit tasks with pg_task.timeout",
  TimeZone: "write options=-c%20TimeZone%3D…",
  server_settings: "write options=-c%20NAME%3DVALUE",
  reWriteBatchedInserts: "remove it",
  stringtype: "remove it",
  async_fallback: "remove it",
};

function each(names: string, remedy: string): Record<string, string> {
  return Object.fromEntries(names.split(" ").map((name) => [name, remedy]));
}

export const foreignRemedy = (name: string): string | null =>
  Object.hasOwn(remedies, name) ? (remedies[name] ?? null) : null;
