import { identifier } from "../../../shared/postgres/quoting.js";
import { featureColumns, type Feature } from "../features.js";
import { isAnySet, userColumns, type OptionCheck } from "./optionCheck.js";

/** Refuses values in the columns of a feature that pg-task does not have yet. */
export function unsupportedCheck(feature: Feature): OptionCheck {
  const columns = userColumns(featureColumns[feature]);
  return { watched: columns, isUsed: isAnySet(columns), body: columns.map(refusal).join("") };
}

const refusal = (column: string): string => `
  IF NEW.${identifier(column)} IS NOT NULL THEN
    RAISE EXCEPTION '${column} is not supported yet' USING ERRCODE = 'feature_not_supported';
  END IF;`;
