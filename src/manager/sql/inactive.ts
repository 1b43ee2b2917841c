/**
 * SQL for whether a task whose plan has come is not worth running any more. With a larger `active`
 * the sum lies in the future anyway, and may leave the range of timestamps: the statement would then
 * fail for all tasks.
 */
export const inactive = `CASE WHEN active > interval '10000 years' THEN false ELSE plan + active <= now() END`;
