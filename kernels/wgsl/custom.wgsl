// An operator of one's own, element by element; one whose shader has a main of its own brings its text along.
fn element(i: u32) -> y_t {
${body}
}
#include elements
