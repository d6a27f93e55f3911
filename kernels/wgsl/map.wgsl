#include math
#if wide
#include int64
#endif

fn element(i: u32) -> y_t {
${body}
}
#include elements
