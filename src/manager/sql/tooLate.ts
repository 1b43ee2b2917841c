/** SQL of a due task that is not worth running any more; longer than dates reach is for ever. */
export const tooLate =
  "max >= 0 AND CASE WHEN active < interval '100000 years' THEN plan + active <= now() ELSE false END";
