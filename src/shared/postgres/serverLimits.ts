/** The oldest supported version of PostgreSQL, as in the setting `server_version_num`. */
export const minServerVersion = 120_000;

/** How many of a server's connections (`max_connections`) pg-task always leaves to other clients. */
export const reservedConnections = 10;

export const maxInt = 2_147_483_647;
