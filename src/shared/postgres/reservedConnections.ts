/** The number of connections below max_connections that pg-task always leaves to other clients. */
export const reservedConnections = 10;
