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

export function followTheme(): void {
  systemDark.addEventListener("change", applyTheme);
  applyTheme();
}

/** If the other theme is that of the system, the page follows the system from then on. */
export function switchTheme(): void {
  const other = theme.value === "dark" ? "light" : "dark";
  if (other === (systemDark.matches ? "dark" : "light")) localStorage.removeItem(themeKey);
  else localStorage.setItem(themeKey, other);
  applyTheme();
}
