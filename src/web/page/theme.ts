import { signal } from "@preact/signals";

const themeKey = "pg-task theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

export type Theme = "light" | "dark";

const chosenTheme = (): Theme | null => {
  const stored = localStorage.getItem(themeKey);
  return stored === "light" || stored === "dark" ? stored : null;
};
const currentTheme = (): Theme => chosenTheme() ?? (systemDark.matches ? "dark" : "light");

export const theme = signal<Theme>(currentTheme());

function applyTheme(): void {
  theme.value = currentTheme();
  document.documentElement.dataset["theme"] = theme.value;
}

/** Applies the chosen theme, or the system theme if none is chosen. */
export function followTheme(): void {
  systemDark.addEventListener("change", applyTheme);
  applyTheme();
}

/** Switches to the other theme. If that is the system's theme, the page follows the system's theme from then on. */
export function switchTheme(): void {
  const other = theme.value === "dark" ? "light" : "dark";
  if (other === (systemDark.matches ? "dark" : "light")) localStorage.removeItem(themeKey);
  else localStorage.setItem(themeKey, other);
  applyTheme();
}
