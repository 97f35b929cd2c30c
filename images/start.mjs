// The start of the image: the `warmpath` command without the set-up of a checkout, since an image has all of it already.

import { main } from '../cli/main.ts';

process.exitCode = await main(process.argv.slice(2));
