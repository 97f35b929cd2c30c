// A histogram as prometheus_client for Python writes it, with its numbers spelled as Python and that library spell them.

/** The library's own spelling: a point always, an exponent from a million on, as Go would write it, and below a ten-thousandth, as Python does. */
export function float(value: number): string {
  if (value > 0 && value < 1e-4) return value.toExponential().replace(/e-(\d)$/, 'e-0$1');
  if (value < 1e6) return Number.isInteger(value) ? `${value}.0` : String(value);
  const digits = String(value);
  const dot = digits.includes('.') ? digits.indexOf('.') : digits.length;
  const mantissa = `${digits[0]}.${digits.slice(1).replace('.', '')}`.replace(/[0.]+$/, '');
  return `${mantissa}e+${String(dot - 1).padStart(2, '0')}`;
}

export class Histogram {
  readonly name: string;
  readonly help: string;
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(name: string, help: string, bounds: readonly number[]) {
    this.name = name;
    this.help = help;
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#sum += value;
    this.#count += 1;
    for (let i = this.#bounds.length - 1; i >= 0 && value <= this.#bounds[i]!; i--) this.#counts[i]! += 1;
  }

  write(lines: string[], model: string, createdSeconds: number): void {
    const { name, help } = this;
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} histogram`);
    this.#bounds.forEach((bound, i) => {
      lines.push(`${name}_bucket{engine="0",le="${float(bound)}",model_name="${model}"} ${float(this.#counts[i]!)}`);
    });
    lines.push(
      `${name}_bucket{engine="0",le="+Inf",model_name="${model}"} ${float(this.#count)}`,
      `${name}_count{engine="0",model_name="${model}"} ${float(this.#count)}`,
      `${name}_sum{engine="0",model_name="${model}"} ${float(this.#sum)}`,
      `# HELP ${name}_created ${help}`,
      `# TYPE ${name}_created gauge`,
      `${name}_created{engine="0",model_name="${model}"} ${float(createdSeconds)}`,
    );
  }
}
