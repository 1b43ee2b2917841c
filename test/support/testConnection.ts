/** Options of a connection with the `search_path` of a user, which pg-task's own connections do not have. */
export const testConnection = { applicationName: "test", settings: { search_path: '"$user", public' } };
