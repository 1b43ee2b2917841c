/**
 * Connection strings that contain a password in the right place, in the wrong place or in a wrong form. None of them
 * leads to a server that lets anybody in.
 */
export const secretRemotes = (secret: string): readonly string[] => [
  `host=127.0.0.1 port=1 password=${secret}`,
  `host=127.0.0.1 port=1 password = '${secret}'`,
  `host=127.0.0.1 port=1 password='${secret.replace(/[\\']/g, "\\$&")}' user=u`,
  `host=127.0.0.1 port=1 password=it's ${secret}`,
  `password: ${secret}`,
  `password:${secret} host=127.0.0.1`,
  `passwort=${secret}`,
  `host=127.0.0.1;password=${secret}`,
  `host=127.0.0.1 port=1 user=u:${secret}`,
  `host=127.0.0.1 port=1 sslmode=prefer;password=${secret}`,
  `host=127.0.0.1 port=1 options='-c my.password=${secret}'`,
  `dbname=postgresql://u:${secret}@127.0.0.1:1/d`,
  ...["sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"].map(
    (keyword) => `host=127.0.0.1 port=1 ${keyword}=${secret}`,
  ),
  `postgresql://u:${secret}@127.0.0.1:1/d`,
  `postgresql://u:${encodeURIComponent(secret)}@127.0.0.1:1/d?application_name=x`,
  ` postgresql://u:${secret}@127.0.0.1:1/d`,
  `"postgresql://u:${secret}@127.0.0.1:1/d"`,
  `postgresql+ssl://u:${secret}@127.0.0.1:1/d`,
  `POSTGRESQL://u:${secret}@127.0.0.1:1/d?sslmode=disable`,
  `jdbc:postgresql://127.0.0.1:1/d?user=u&password=${secret}`,
  `u:${secret}@127.0.0.1:1/d`,
  `p@ss:${secret}@127.0.0.1:1/d`,
  `postgresql://p@ss:${secret}@127.0.0.1:1/d`,
  `postgresql://u:p@${secret}@127.0.0.1:1/d`,
  `postgresql://u:12/${secret}@127.0.0.1:1/d`,
  `postgresql://u:12/my?${secret}@127.0.0.1:1/d`,
  `postgresql://u:p@127.0.0.1:1/${secret}@127.0.0.1:1/d`,
  `postgresql://127.0.0.1:1/d?password=${secret}`,
  `postgresql://127.0.0.1:1/d?user=u&pass%77ord=${secret}&sslmode=disable`,
  `postgresql://127.0.0.1:1/d?sslpassword=${secret}`,
  `postgresql://127.0.0.1:1/d?passwd=${secret}`,
];
