/**
 * Returns the URL of a file or folder of this package. The bundles (bundle.mjs) are as deep in `dist` as this module.
 */
export const packageFile = (path: string): URL => new URL(`../../../${path}`, import.meta.url);
