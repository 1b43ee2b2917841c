/** The oldest supported version of PostgreSQL, as in the setting `server_version_num`. */
export const minServerVersion = 120_000;

/** The number of connections below max_connections that pg-task always leaves to other clients. */
export const reservedConnections = 10;

/** Largest value of PostgreSQL's `integer`. */
export const maxInt = 2_147_483_647;
