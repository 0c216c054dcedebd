//! The README's program is the example `films`, which is compiled.

/// Guards against a program that a reader copies and that does not compile.
#[test]
fn program_of_the_readme_is_the_example() {
    let (_, program) = include_str!("../../examples/films.rs").split_once("\n\n").expect("a header comes first");
    let block = format!("```rust\n{program}```\n");
    assert!(include_str!("../../README.md").contains(&block), "copy examples/films.rs to README.md");
}
