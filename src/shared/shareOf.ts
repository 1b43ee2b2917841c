/** The share of the tasks of a group according to `pg_task.share`. Null if tasks have none. */
export function shareOf(setting: string, group: string): string | null {
  if (setting === "") return null;
  const end = group.indexOf(setting);
  return end < 0 ? group : group.slice(0, end);
}
