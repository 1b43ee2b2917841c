/** Returns a copy of the object with the type `any`, as a program without types would pass it. */
export const untyped = (value: object): ReturnType<typeof JSON.parse> => Object.assign(JSON.parse("{}"), value);
