// A step of the compiler: small functions go into their callers before anything else is optimised. The compiler's own limits leave a
// bounds-checked array access a call, of which a request makes hundreds; with the limits here the check stays and the call goes.

const alwaysInlineBytesMax = 24;
const inlineBytesMax = 65;
const onlyCallerBytesMax = 200;

export default class Inline {
  afterCompile(module) {
    const { binaryen } = this;
    binaryen.setOptimizeLevel(3);
    binaryen.setShrinkLevel(0);
    binaryen.setAlwaysInlineMaxSize(alwaysInlineBytesMax);
    binaryen.setFlexibleInlineMaxSize(inlineBytesMax);
    binaryen.setOneCallerInlineMaxSize(onlyCallerBytesMax);
    module.runPasses(['simplify-locals', 'vacuum', 'precompute', 'coalesce-locals', 'vacuum', 'inlining-optimizing']);
  }
}
