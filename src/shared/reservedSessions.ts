const reservedOneIn = 4;

/** Returns how many of `sessions` are reserved if the setting `pg_conf.reserve` has this value. */
export const reservedSessions = (sessions: number, setting: number): number =>
  Math.min(setting, Math.floor(sessions / reservedOneIn));
