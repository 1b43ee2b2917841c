/** @param failures how many runs in a row have failed */
export const describeSuspension = (failures: number): string =>
  `suspended after ${failures === 1 ? "a failure" : `${failures} failures in a row`}`;
