#include math
#if trig
#include trig
#endif
#if wide
#include int64
#endif

fn element(i: u32) -> y_t {
${body}
}
#include elements
