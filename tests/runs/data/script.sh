tr a-z A-Z < sample.txt > upper
mv upper sample.txt
