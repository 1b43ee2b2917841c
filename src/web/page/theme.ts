import { signal } from "@preact/signals";

const storedUnder = "pg-task theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export type Theme = "light" | "dark";

const chosen = (): Theme | null => {
  const stored = localStorage.getItem(storedUnder);
  return stored === "light" || stored === "dark" ? stored : null;
};
const current = (): Theme => chosen() ?? (system.matches ? "dark" : "light");

export const theme = signal<Theme>(current());

function show(): void {
  theme.value = current();
  document.documentElement.dataset["theme"] = theme.value;
}

/** Shows the page in the theme that is chosen, or the system's while none is. */
export function followTheme(): void {
  system.addEventListener("change", show);
  show();
}

/** The other one, from now on; back at the system's own choice it follows that again. */
export function switchTheme(): void {
  const other = theme.value === "dark" ? "light" : "dark";
  if (other === (system.matches ? "dark" : "light")) localStorage.removeItem(storedUnder);
  else localStorage.setItem(storedUnder, other);
  show();
}
