/**
 * SQL condition: the role may own functions that the manager runs as itself. It is one whose privileges the manager
 * has, a superuser, or the owner of the table, the schema or the database. Any other role could have created or
 * replaced the functions to run SQL as the manager.
 */
export const isTrustedOwner = (role: string, table: string): string => `(pg_catalog.pg_has_role(${role}, 'USAGE')
    OR ${role} IN (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolsuper)
    OR ${role} IN (SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    OR ${role} IN (SELECT unnest(ARRAY[c.relowner, n.nspowner]) FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass(${table})))`;
