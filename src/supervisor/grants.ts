/**
 * Shares `total` sessions out: nobody gets more than it asks for, and what one does not ask for is
 * the others'. Where there is too little, those that ask for the least are served first, the rest
 * alike.
 */
export function shareOut(total: number, demands: readonly number[]): number[] {
  const shares = demands.map(() => 0);
  let left = total;
  const order = demands.map((demand, index) => ({ demand, index }));
  order.sort((a, b) => a.demand - b.demand || a.index - b.index);
  for (const [place, { demand, index }] of order.entries()) {
    const share = Math.min(demand, Math.ceil(left / (order.length - place)));
    shares[index] = share;
    left -= share;
  }
  return shares;
}
