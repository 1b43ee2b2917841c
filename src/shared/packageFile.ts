/**
 * Returns the URL of a file or folder of this package.
 *
 * @param path relative to the folder of `package.json`. The bundles (bundle.mjs) are as deep in `dist` as this module, so
 * that this finds the folder from them, too.
 */
export const packageFile = (path: string): URL => new URL(`../../../${path}`, import.meta.url);
