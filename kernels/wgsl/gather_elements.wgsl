#include index

fn element(i: u32) -> y_t {
${body}
}
#include elements
